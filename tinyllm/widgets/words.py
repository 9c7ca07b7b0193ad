"""The words of a widget, which also keep its keys to themselves: `Words`.

JupyterLab has a command on nearly every letter: with the focus in a list, `x` cuts the
cell. It leaves alone an element that carries `data-lm-suppress-shortcuts`, and only
that element, so each one gets the attribute at the moment it gets the focus.
"""

from __future__ import annotations

import anywidget
import traitlets

SCRIPT = """
function render({ model, el }) {
  el.setAttribute("aria-live", "polite");
  const show = () => { el.innerHTML = model.get("value"); };
  const keep = (event) => {
    const widget = el.closest(".jp-OutputArea-output");
    if (widget && widget.contains(event.target))
      event.target.setAttribute("data-lm-suppress-shortcuts", "true");
  };
  show();
  model.on("change:value", show);
  document.addEventListener("focusin", keep);
  return () => document.removeEventListener("focusin", keep);
}
export default { render };
"""


class Words(anywidget.AnyWidget):
    """HTML that a screen reader reads aloud when it changes.

    While any part of the same widget has the focus, no key reaches the notebook.
    """

    _esm = SCRIPT
    value = traitlets.Unicode().tag(sync=True)
