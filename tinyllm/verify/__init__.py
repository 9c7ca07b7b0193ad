"""Does it still hold: equal logits, and equal texts warm and cold.

`tinyllm.verify(lm, prompt)` is `equivalence.verify`: the package itself can be called,
since a function of that name would be replaced by it on the first import.
"""

import sys
from types import ModuleType

from tinyllm.verify.equivalence import verify


class _Verify(ModuleType):
    __call__ = staticmethod(verify)


sys.modules[
    __name__
].__class__ = _Verify  # the documented way to make a module callable
