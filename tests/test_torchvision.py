"""torchvision's published figures: multiply-adds to the digits printed, parameters exactly."""

import pytest
from sweep_torchvision import PAGE, account_of, as_published, published

FIGURES = published()
SPREAD = (
    "alexnet", "convnext_tiny", "efficientnet_b0", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small",
    "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1",
    "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_16",
)  # fmt: skip
MODELS = [pytest.param(*key, id="{}-{}".format(*key)) for key in FIGURES if key[0] in SPREAD and key[1] < 384]
OTHERS = [pytest.param(*key, id="{}-{}".format(*key)) for key in FIGURES if key[0] not in SPREAD or key[1] >= 384]


def is_as_published(model, crop):
    gmacs, params = FIGURES[model, crop]
    account = account_of(model, crop)
    assert account.unknown == []
    assert [a for a in account.assumptions if a.relation] == []
    assert as_published(account)[1] == str(float(gmacs))
    assert {symbol.name for symbol in account.forward.flops.free_symbols} == {"B"}
    assert account.params == params


@pytest.mark.parametrize(("model", "crop"), MODELS)
def test_forward_and_parameters_are_as_published(model, crop):
    """A spread over the families: flops/2 of one image in 1e9 rounds to the published figure, parameters are equal."""
    is_as_published(model, crop)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "crop"), OTHERS)
def test_forward_and_parameters_of_every_other_model_are_as_published(model, crop):
    """The rest of the classification models, at each crop size that has weights."""
    is_as_published(model, crop)


@pytest.mark.parametrize(
    ("model", "crop", "with_heads", "without"),
    [("googlenet", 224, 13004888, 6624904), ("inception_v3", 299, 27161264, 23834568)],
)
def test_auxiliary_heads_are_parameters_but_no_work_in_eval_mode(model, crop, with_heads, without):
    """GoogLeNet is published without its auxiliary heads, Inception with its one; neither runs them in eval mode."""
    full = account_of(model, crop, aux_logits=True)
    bare = account_of(model, crop, aux_logits=False)
    assert (full.params, bare.params) == (with_heads, without)
    assert full.forward.flops == bare.forward.flops
    assert as_published(full)[1] == FIGURES[model, crop][0]
    assert FIGURES[model, crop][1] == (without if model == "googlenet" else with_heads)


def test_the_page_lists_every_model():
    """docs/torchvision.md has a row for each model and crop, and every row says that the figures are equal."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ") and "*B" in line]
    listed = {(row[1].strip(), int(row[2])): row[-2].strip() for row in rows}
    assert listed == dict.fromkeys(FIGURES, "equal")
