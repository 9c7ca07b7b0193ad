"""A pytest plugin that closes six gaps of nbval 0.11 when it runs with --nbval.

1. Pictures are compared, by pixels: nbval passes over image/png and image/jpeg. One
   that differs is kept in build/nbval, beside the stored one and their difference.
2. A cell that was never run is a failure: nbval runs it and compares nothing.
3. A trailing semicolon works: nbval keeps no history, and IPython then overlooks it.
4. What an Output widget captures is not taken for output of the cell.
5. Kernels start without the user's own IPython profile.
6. A failure names the cell by its number and heading, and says which of two outputs was
   stored and which is the one now.

The price: it patches methods of nbval, hence `nbval==0.11.*` in pyproject.toml and
tests/notebooks/test_nbval_gaps.py, which damages notebooks on purpose.
"""

from __future__ import annotations

import base64
import difflib
import io
import os
import re
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

PICTURES = ("image/png", "image/jpeg")
KEPT = Path("build", "nbval").absolute()  # pictures that differ
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


def heading_of(nb, number):
    """The last heading above code cell `number` (from 0), or "" above the first."""
    heading, seen = "", -1
    for cell in nb.cells:
        if cell.cell_type == "code":
            seen += 1
            if seen == number:
                return heading
        elif cell.cell_type == "markdown":
            found = re.findall(r"^#+ *(.+)$", cell.source, re.MULTILINE)
            heading = found[-1] if found else heading
    return heading


def text_of(outputs):
    """What outputs show as text, a line each; pictures by their names."""
    lines = []
    for output in outputs:
        data = output.get("data", {})
        if "text" in output:
            lines += output["text"].splitlines()
        elif "ename" in output:
            lines.append(f"{output['ename']}: {output['evalue']}")
        for kind in sorted(data):
            shown = f"({kind})" if kind in PICTURES else str(data[kind])
            lines += shown.splitlines()
        if output.get("name") == "stderr":
            lines[-1:] = [f"stderr: {line}" for line in lines[-1:]]
    return lines


def difference_in_words(stored, now):
    """The lines in which two lists of outputs differ, labelled "stored" and "now"."""
    before, after = text_of(stored), text_of(now)
    lines = [*difflib.unified_diff(before, after, "stored", "now", lineterm="", n=2)]
    return lines or ["the outputs are of other kinds, or in another order"]


def keep_pictures(folder, stored, drawn):
    """Write each pair of pictures that differ, and their difference; the paths."""
    kept = []
    folder.mkdir(parents=True, exist_ok=True)
    for i, ((_, old), (_, new)) in enumerate(zip(stored, drawn, strict=False), 1):
        arrays = {"stored": pixels(old), "now": pixels(new)}
        if arrays["stored"].shape == arrays["now"].shape:
            apart = np.abs(arrays["stored"] - arrays["now"])[..., :3].max(axis=2)
            arrays["difference"] = 255 - np.repeat(apart[..., None], 3, axis=2)
        for name, array in arrays.items():
            path = folder / f"picture-{i}-{name}.png"
            Image.fromarray(array.astype(np.uint8)).save(path)
            kept.append(path)
    return kept


def explains_differences(text_only):
    """nbval's comparison, and then the pictures; a difference is put into words."""

    def compare_outputs(self, test, ref, skip_compare=None):
        same_text = text_only(self, test, ref, skip_compare)
        stored, drawn = pictures(ref), pictures(test)
        faults = compare_pictures(stored, drawn)
        if same_text and not faults:
            return True
        self.comparison_traceback = [] if same_text else difference_in_words(ref, test)
        if faults:
            chapter = Path(self.parent.path).stem
            folder = KEPT / chapter / f"cell-{self.cell_num + 1}"
            kept = keep_pictures(folder, stored, drawn)
            self.comparison_traceback += [*faults, *map(str, kept)]
        return False

    return compare_outputs


def names_the_cell(_):
    """What a failure says: which cell, what went wrong, what to do."""

    def repr_failure(self, excinfo):
        error = excinfo.value
        heading = heading_of(self.parent.nb, self.cell_num)
        where = f"{self.parent.path.name} [{self.cell_num + 1}]"
        lines = [f'{where}, under "{heading}": {error}', "", self.cell.source, ""]
        lines.append(getattr(error, "inner_traceback", None) or "")
        advice = "If the new output is right, store it: make notebooks"
        return "\n".join([*lines, advice])

    return repr_failure


def insists_on_a_reference(plain_runtest):
    """nbval's run of a cell, which fails afterwards if nothing was stored for it."""

    def runtest(self):
        plain_runtest(self)
        if self.cell.execution_count is None and self.cell.source.strip():
            self.raise_cell_error("this cell was never run, so nothing was compared")

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
    """Put the changes in place, once."""
    from nbval.kernel import RunningKernel
    from nbval.plugin import IPyNbCell, IPyNbFile

    if RunningKernel.execute_cell_input is with_history:
        return
    RunningKernel.execute_cell_input = with_history
    IPyNbCell.compare_outputs = explains_differences(IPyNbCell.compare_outputs)
    IPyNbCell.repr_failure = names_the_cell(IPyNbCell.repr_failure)
    IPyNbCell.runtest = insists_on_a_reference(IPyNbCell.runtest)
    IPyNbFile.get_kernel_message = knows_output_widgets(IPyNbFile.get_kernel_message)


def pytest_configure(config):
    if config.getoption("nbval", False) or config.getoption("nbval_lax", False):
        profile = tempfile.TemporaryDirectory(prefix="tinyllm-ipython-")
        config.add_cleanup(profile.cleanup)
        os.environ["IPYTHONDIR"] = profile.name
        patch_nbval()
