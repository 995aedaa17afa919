from pathlib import Path

from PIL import Image as PILImage

from mai_plugin.analysis.runs import load_runs
from mai_plugin.core.records import Call, Completion, Image, Message, Outcome, Request
from mai_plugin.run.store import Store, request_key

REQUEST = Request((Message("user", (Image(PILImage.new("RGB", (2, 2), "red")), "How many?")),), 16, "chartqa/0", "S")
DONE = Completion("three \ud83d", 30, 4, 2, 0.1, 0.2, "stop", -0.5)


def test_a_call_is_found_again_as_it_was_made(tmp_path: Path):
    store = Store(tmp_path / "runs" / "calls.sqlite")
    key = request_key("model@1", REQUEST)
    assert store.find(key) is None
    id = store.add_call(key, "model@1", "scripted", REQUEST, DONE)
    assert Store(store.path).find(key) == (id, DONE)


def test_a_run_is_read_as_it_was_written(tmp_path: Path):
    store = Store(tmp_path / "calls.sqlite")
    id = store.add_call("k", "model@1", "scripted", REQUEST, DONE)
    made = Completion("three \ud83d", 30, 4, 2, 0.1, 0.2, "stop", -0.5, reused=True, call_id=id)
    call = Call("model", "S", made, "three")
    store.begin_run("r1", "tiny-S", "single", "scripted", {"models": {}}, {"harness": "none"})
    store.add_outcome("r1", Outcome("chartqa/0", "S", call, (call,)), "three")
    store.add_failure("r1", "chartqa/1", "no image")
    (unfinished,) = load_runs(tmp_path)
    assert (unfinished.finished, unfinished.wall_s) == (False, None)
    store.end_run("r1", 1.5)
    (run,) = load_runs(tmp_path, ["tiny-S"])
    assert (run.finished, run.wall_s, run.tasks, run.reused_calls) == (True, 1.5, ("chartqa",), 1)
    assert run.samples["chartqa/0"].calls == (call,)
    assert run.samples["chartqa/0"].returned == "three"
    assert run.samples["chartqa/1"].error == "no image"
