"""A pytest plugin that closes five gaps of nbval 0.11 when it runs with --nbval.

1. Pictures are compared, by pixels: nbval passes over image/png and image/jpeg.
2. A cell that was never run is a failure: nbval runs it and compares nothing.
3. A trailing semicolon works: nbval keeps no history, and IPython then overlooks it.
4. What an Output widget captures is not taken for output of the cell.
5. Kernels start without the user's own IPython profile.

The price: it patches methods of nbval, hence `nbval==0.11.*` in pyproject.toml and
tests/notebooks/test_nbval_gaps.py, which damages notebooks on purpose.
"""

from __future__ import annotations

import base64
import io
import os
import tempfile

import numpy as np
from PIL import Image

PICTURES = ("image/png", "image/jpeg")
RMS_LIMIT = 2.0  # grey levels, over the whole picture
BLOCK, BLOCK_LIMIT = 16, 16.0  # and over each block: one changed digit is about 70
CAPTURED = ("stream", "display_data", "execute_result", "error", "clear_output")


def pixels(encoded):
    """The picture inside a base64 string, as floats (rows, columns, 4)."""
    picture = Image.open(io.BytesIO(base64.b64decode(encoded)))
    return np.asarray(picture.convert("RGBA"), dtype=float)


def picture_difference(old, new):
    """(rms, worst rms of a block) in grey levels; infinite where the sizes differ."""
    if old.shape != new.shape:
        return float("inf"), float("inf")
    square = ((old - new) ** 2).mean(axis=2)
    rows, columns = (-(-size // BLOCK) * BLOCK for size in square.shape)
    padded = np.zeros((rows, columns))
    padded[: square.shape[0], : square.shape[1]] = square
    blocks = padded.reshape(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    return float(square.mean() ** 0.5), float(blocks.mean(axis=(1, 3)).max() ** 0.5)


def pictures(outputs):
    """(kind, base64 string) of every picture among the outputs of a cell."""
    data = [o.get("data", {}) for o in outputs]
    return [(kind, d[kind]) for d in data for kind in PICTURES if kind in d]


def compare_pictures(stored, drawn):
    """A sentence for each way in which two lists of pictures differ."""
    if [kind for kind, _ in stored] != [kind for kind, _ in drawn]:
        return [f"pictures: {len(stored)} stored, {len(drawn)} drawn now"]
    faults = []
    for i, ((_, old), (_, new)) in enumerate(zip(stored, drawn, strict=True), 1):
        whole, worst = picture_difference(pixels(old), pixels(new))
        if whole > RMS_LIMIT or worst > BLOCK_LIMIT:
            faults.append(
                f"picture {i} differs: rms {whole:.1f} (at most {RMS_LIMIT}), "
                f"worst block {worst:.1f} (at most {BLOCK_LIMIT})"
            )
    return faults


def sees_pictures(text_only):
    """nbval's comparison, and then the pictures."""

    def compare_outputs(self, test, ref, skip_compare=None):
        if not text_only(self, test, ref, skip_compare):
            return False
        faults = compare_pictures(pictures(ref), pictures(test))
        self.comparison_traceback.extend(faults)
        return not faults

    return compare_outputs


def insists_on_a_reference(plain_runtest):
    """nbval's run of a cell, refused where there is nothing to compare with."""

    def runtest(self):
        if self.cell.execution_count is None and self.cell.source.strip():
            self.raise_cell_error("this cell was never run: `make notebooks` runs it")
        plain_runtest(self)

    return runtest


def knows_output_widgets(plain_message):
    """nbval's reading of messages, without those that an Output widget captures."""

    def get_kernel_message(self, timeout=None, stream="iopub"):
        message = plain_message(self, timeout=timeout, stream=stream)
        if stream != "iopub":
            return message
        sinks = self.__dict__.setdefault("_output_widgets", {})
        follow_output_widget(sinks, message["msg_type"], message["content"])
        captured = message["parent_header"].get("msg_id") in sinks.values()
        if captured and message["msg_type"] in CAPTURED:
            return dict(message, msg_type="comm_captured")  # nbval passes over comm*
        return message

    return get_kernel_message


def follow_output_widget(sinks, kind, content):
    """Note in `sinks` (comm id -> message id) which output each widget captures."""
    if kind not in ("comm_open", "comm_msg"):
        return
    state = content.get("data", {}).get("state", {})
    if kind == "comm_open" and state.get("_model_name") == "OutputModel":
        sinks[content["comm_id"]] = state.get("msg_id", "")
    elif content["comm_id"] in sinks and "msg_id" in state:
        sinks[content["comm_id"]] = state["msg_id"]


def with_history(self, cell_input, allow_stdin=None):
    """Run a cell as a front end does, so that IPython sees a trailing semicolon."""
    return self.kc.execute(
        cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False
    )


def patch_nbval():
    """Put the five changes in place, once."""
    from nbval.kernel import RunningKernel
    from nbval.plugin import IPyNbCell, IPyNbFile

    if RunningKernel.execute_cell_input is with_history:
        return
    RunningKernel.execute_cell_input = with_history
    IPyNbCell.compare_outputs = sees_pictures(IPyNbCell.compare_outputs)
    IPyNbCell.runtest = insists_on_a_reference(IPyNbCell.runtest)
    IPyNbFile.get_kernel_message = knows_output_widgets(IPyNbFile.get_kernel_message)


def pytest_configure(config):
    if config.getoption("nbval", False) or config.getoption("nbval_lax", False):
        profile = tempfile.TemporaryDirectory(prefix="tinyllm-ipython-")
        config.add_cleanup(profile.cleanup)
        os.environ["IPYTHONDIR"] = profile.name
        patch_nbval()
