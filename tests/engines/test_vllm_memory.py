import pytest
from hypothesis import given
from hypothesis import strategies as st

from mai_plugin.engines.vllm_memory import GIB, LEAST_CACHE, USABLE, Claim, Gpu, share_memory, weight_bytes

ONE_80 = {0: Gpu(80 * GIB, 79 * GIB)}


def claim(gib: float, *devices: int, fixed: float | None = None) -> Claim:
    return Claim(devices or (0,), int(gib * GIB), fixed)


def test_weights_first_and_the_rest_in_equal_parts():
    shares = share_memory(ONE_80, {"small": claim(4.5), "large": claim(17.5)})
    rest = USABLE * 80 - 22
    assert shares["small"] * 80 == pytest.approx(4.5 + rest / 2, abs=0.1)
    assert shares["large"] * 80 == pytest.approx(17.5 + rest / 2, abs=0.1)


def test_a_share_that_the_user_gave_stays():
    shares = share_memory(ONE_80, {"small": claim(0, fixed=0.3), "large": claim(17.5)})
    assert shares == {"small": 0.3, "large": pytest.approx(0.6, abs=0.001)}


def test_models_on_different_gpus_have_each_their_own():
    gpus = {0: Gpu(24 * GIB, 24 * GIB), 1: Gpu(80 * GIB, 80 * GIB)}
    shares = share_memory(gpus, {"small": claim(4.5, 0), "large": claim(17.5, 1)})
    assert shares == {"small": pytest.approx(USABLE, abs=0.001), "large": pytest.approx(USABLE, abs=0.001)}


def test_a_model_on_two_gpus_gets_the_least_that_one_of_them_has():
    gpus = {0: Gpu(80 * GIB, 80 * GIB), 1: Gpu(80 * GIB, 80 * GIB)}
    shares = share_memory(gpus, {"small": claim(4, 0), "large": claim(8, 0, 1)})
    assert shares["large"] * 80 == pytest.approx(8 + (USABLE * 80 - 12) / 2, abs=0.1)


def test_what_another_process_holds_is_not_shared_out():
    busy = share_memory({0: Gpu(80 * GIB, 50 * GIB)}, {"small": claim(4.5), "large": claim(17.5)})
    assert sum(busy.values()) * 80 < 50


@pytest.mark.parametrize(
    ("gpu", "claims"),
    [
        (Gpu(16 * GIB, 16 * GIB), {"small": claim(4.5), "large": claim(17.5)}),
        (Gpu(80 * GIB, 20 * GIB), {"small": claim(4.5), "large": claim(17.5)}),
        (Gpu(80 * GIB, 80 * GIB), {"small": claim(0, fixed=0.6), "large": claim(0, fixed=0.5)}),
    ],
)
def test_what_does_not_fit_is_refused_with_a_way_out(gpu, claims):
    with pytest.raises(ValueError, match=r"GPU 0 has .* GiB free, too little for small .*, large .*device_ids"):
        share_memory({0: gpu}, claims)


@given(
    st.floats(8, 200), st.floats(0.2, 1), st.floats(0.1, 80), st.floats(0.1, 80), st.none() | st.floats(0.05, 0.9)
)  # fmt: skip
def test_shares_never_exceed_what_is_free_and_hold_the_weights(total, free, small, large, fixed):
    gpus = {0: Gpu(int(total * GIB), int(free * total * GIB))}
    claims = {"small": claim(small, fixed=fixed), "large": claim(large)}
    try:
        shares = share_memory(gpus, claims)
    except ValueError:
        return
    assert sum(shares.values()) * gpus[0].total <= gpus[0].free
    assert shares["large"] * gpus[0].total >= claims["large"].weights + LEAST_CACHE - 0.001 * gpus[0].total


def test_weights_are_measured_by_their_files(tmp_path):
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"x" * 50)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 999)
    assert weight_bytes(str(tmp_path)) == 150
    (tmp_path / "empty").mkdir()
    assert weight_bytes(str(tmp_path / "empty")) is None
