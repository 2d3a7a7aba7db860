"""docs/howto/telemetry.md: its Python runs as it is."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

WriteFile = Callable[..., Path]
PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "telemetry.md").read_text()


def test_the_page_runs(
    write_file: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the telemetry of a client and of a server whose clock is ahead, the first requests slow."""
    took = [0.5 if second < 2 else 0.01 for second in range(10)]
    asked = [(100 + second, second, seconds) for second, seconds in enumerate(took)]
    client = [f"d,{at},{number},GET,/,200,client,,{seconds + 0.002}" for at, number, seconds in asked]
    server = [f"q,{at + 5.001},{number},GET,/,200,{seconds},0.001,{seconds - 0.001}" for at, number, seconds in asked]
    figures = [f"r,{105 + n},{name},{n}" for n in range(3) for name in ("cpu_user_s", "cpu_system_s")]
    write_file("client-1.csv", client, folder="telemetry")
    write_file("worker-1.csv", [*server, *figures], folder="telemetry", boot="there")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)

    exec(compile("\n".join(blocks[1:3]), "docs/howto/telemetry.md", "exec"), {})

    told = capsys.readouterr().out
    assert "Kept + trimmed = all: client 8 + 2 = 10; framework 8 + 2 = 10; handler 8 + 2 = 10; server 8 + 2" in told
    assert "there: its clock is 5000.000 ms ahead of the client's (± 1.000 ms, from 10 requests)." in told
