"""What a `Trainer` promises: every sample once, every push counted, the user's objects given back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Counter, classes, copy_of, first, fit, numbers, perceptron, same_weights
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import wasp_local as wl

PROTOCOLS = [
    wl.wasp(sync_every=5),
    wl.bsp(),
    wl.asp(),
    wl.ssp(slack=1),
    wl.downpour(pull_every=2),
    wl.softsync(),
    wl.sa_asgd(),
    wl.hogwild(),
]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_every_step_sample_and_push_is_counted_once(protocol: Any) -> None:
    model = perceptron()
    result = fit(
        model, classes(101), optimizer=SGD(model.parameters(), 0.05), workers=3, epochs=2, batch_size=16,
        protocol=protocol,
    )  # fmt: skip
    assert result.samples == 202 == sum(report.samples for report in result.workers)
    assert result.pushes == 14 == sum(report.pushes for report in result.workers)
    assert sum(result.staleness_histogram.values()) == 14
    one_each = protocol.aggregate.gradients(3) == 1
    assert result.updates == (14 if one_each else 6 if protocol.name == "bsp" else 5)


def test_thirty_seven_steps_are_thirty_seven_updates() -> None:
    model = Counter()
    result = fit(
        model, numbers(100), loss=first, optimizer=SGD(model.parameters(), 1.0), workers=4, steps=37,
        batch_size=8, protocol=wl.asp(),
    )  # fmt: skip
    assert result.updates == result.pushes == 37 == sum(report.pushes for report in result.workers)
    assert model.total.item() == -37
    assert result.samples == 2 * 100 + 11 * 8


def test_a_budget_of_samples_is_met_exactly() -> None:
    model = perceptron()
    result = fit(
        model, classes(100), optimizer=SGD(model.parameters(), 0.1), workers=2, samples=130, batch_size=16
    )
    assert result.samples == 130


def test_steps_of_bsp_are_updates() -> None:
    model = perceptron()
    result = fit(
        model, classes(), optimizer=SGD(model.parameters(), 0.1), workers=3, steps=7, batch_size=8,
        protocol="bsp",
    )  # fmt: skip
    assert (result.updates, result.pushes) == (7, 21 - 0)


def test_adams_state_is_one_for_all_workers() -> None:
    model = perceptron()
    optimizer = Adam(model.parameters())
    fit(model, classes(), optimizer=optimizer, workers=2, steps=40, batch_size=16)
    assert {state["step"].item() for state in optimizer.state.values()} == {40.0}
    assert all(state["exp_avg_sq"].any() for state in optimizer.state.values())


def test_a_second_fit_goes_on_from_the_first() -> None:
    once, twice = perceptron(), perceptron()
    fit(once, classes(), optimizer=Adam(once.parameters()), workers=1, steps=12, batch_size=16, shuffle=False)
    trainer = wl.Trainer(
        twice, optimizer=Adam(twice.parameters()), workers=1, threads=1, steps=6, batch_size=16, shuffle=False,
        quiet=True,
    )  # fmt: skip
    trainer.fit(classes())
    trainer.fit(classes())
    assert same_weights(once, twice)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_schedule_counts_updates_whoever_makes_them(workers: int) -> None:
    # at gradient 1 the parameter ends at minus the sum of all learning rates
    model = Counter()
    optimizer = SGD(model.parameters(), 1.0)
    scheduler = StepLR(optimizer, 10, 0.5)
    fit(
        model, numbers(64), loss=first, optimizer=optimizer, scheduler=scheduler, workers=workers, steps=40,
        batch_size=4, protocol=wl.asp(),
    )  # fmt: skip
    assert model.total.item() == -(10 * (1 + 0.5 + 0.25 + 0.125))
    assert (scheduler.last_epoch, optimizer.param_groups[0]["lr"]) == (40, 0.0625)


def test_a_plateau_scheduler_is_stepped_once_an_evaluation() -> None:
    model = Counter()
    optimizer = SGD(model.parameters(), 1.0)
    scheduler = ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
    result = fit(
        model, numbers(16), numbers(8), loss=first, optimizer=optimizer, scheduler=scheduler, workers=2,
        epochs=4, batch_size=4, protocol=wl.asp(),
    )  # fmt: skip
    # the loss falls each epoch, which "max" takes for no improvement after the first
    assert scheduler.last_epoch == 4 == len(result.evaluations)
    assert model.total.item() == -(4 * 1 + 4 * 1 + 4 * 0.5 + 4 * 0.25)


def test_a_branch_that_no_batch_uses_keeps_its_bits_under_weight_decay() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.used(inputs)

    model = Branches()
    before = copy_of(model)
    fit(
        model, classes(), optimizer=SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.1), workers=2,
        steps=20, batch_size=16,
    )  # fmt: skip
    assert same_weights(model.unused, before.unused)
    assert not same_weights(model.used, before.used)


def test_frozen_parameters_and_those_of_no_group_keep_their_bits() -> None:
    model = perceptron()
    model[0].bias.requires_grad_(False)
    before = copy_of(model)
    fit(model, classes(), optimizer=SGD([model[0].weight, model[0].bias], 0.1), workers=2, steps=5)
    assert torch.equal(model[0].bias, before[0].bias)
    assert same_weights(model[2], before[2])
    assert not torch.equal(model[0].weight, before[0].weight)


def test_param_groups_keep_their_own_settings() -> None:
    model = perceptron()
    before = copy_of(model)
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}]
    fit(model, classes(), optimizer=SGD(groups, 0.1), workers=2, steps=5)
    assert same_weights(model[0], before[0])
    assert not same_weights(model[2], before[2])


def test_batch_norm_counts_all_batches_and_evaluates_as_it_is_saved() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    data = classes(200)
    result = fit(
        model, data, data, optimizer=SGD(model.parameters(), 0.05), workers=2, epochs=5, batch_size=20,
        protocol=wl.wasp(sync_every=5),
    )  # fmt: skip
    assert model[1].num_batches_tracked.item() == 50
    assert torch.all(model[1].running_var > 0)
    model.eval()
    accuracy = (model(data[0]).argmax(1) == data[1]).float().mean().item()
    assert result.accuracy == pytest.approx(accuracy)


def test_the_test_set_is_seen_whole_once_an_evaluation() -> None:
    model = perceptron()
    test = classes(1000, seed=1)
    result = fit(model, classes(), test, optimizer=SGD(model.parameters(), 0.1), workers=3, epochs=2)
    model.eval()
    with torch.no_grad():
        output = model(test[0])
    assert result.accuracy == pytest.approx((output.argmax(1) == test[1]).float().mean().item())
    assert result.test_loss == pytest.approx(nn.functional.cross_entropy(output, test[1]).item(), rel=1e-5)
    assert [round(each.epoch, 6) for each in result.evaluations] == [1, 2]


def test_a_run_ends_at_the_accuracy_that_was_asked_for() -> None:
    model = perceptron()
    result = fit(
        model, classes(), classes(), optimizer=SGD(model.parameters(), 0.1), workers=2, epochs=1000,
        batch_size=8, target_accuracy=0.8,
    )  # fmt: skip
    assert (result.accuracy or 0) >= 0.8
    assert result.samples < 96 * 1000
    assert "reached the target of 80.00%" in result.stopped
    model.eval()
    inputs, targets = classes()
    assert (model(inputs).argmax(1) == targets).float().mean().item() == pytest.approx(result.accuracy)


def test_a_callback_sees_the_model_of_the_moment_and_may_stop_the_run() -> None:
    model = Counter()
    seen: list[tuple[int, float]] = []

    def watch(moment: wl.Moment) -> None:
        seen.append((moment.updates, moment.model.total.item()))
        if len(seen) == 3:
            moment.stop("seen enough")

    result = fit(
        model, numbers(16), loss=first, optimizer=SGD(model.parameters(), 1.0), workers=2, epochs=50,
        batch_size=4, protocol=wl.asp(), callbacks=[watch],
    )  # fmt: skip
    assert seen == [(4, -4.0), (8, -8.0), (12, -12.0)]
    assert (result.stopped, result.updates, model.total.item()) == ("seen enough", 12, -12.0)


def test_a_callbacks_error_is_the_users_own() -> None:
    model = perceptron()

    def fail(_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fit(model, classes(), optimizer=SGD(model.parameters(), 0.1), workers=2, callbacks=[fail])


def test_the_run_folder_holds_what_the_run_was_and_became(tmp_path: Path) -> None:
    model = perceptron()
    result = fit(
        model, classes(), classes(), optimizer=SGD(model.parameters(), 0.1), workers=2, epochs=2, out=tmp_path
    )
    assert result.run_folder is not None
    assert sorted(path.name for path in result.run_folder.iterdir()) == [
        "config.json",
        "metrics.jsonl",
        "weights.pt",
    ]
    fresh = perceptron(seed=1)
    fresh.load_state_dict(torch.load(result.run_folder / "weights.pt", weights_only=True))
    assert same_weights(fresh, model)


def test_a_dataset_whose_items_are_random_is_read_anew_each_time() -> None:
    class Noisy(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 32

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.rand(6), index % 3

    model = perceptron()
    result = fit(model, Noisy(), optimizer=SGD(model.parameters(), 0.1), workers=2, epochs=2, batch_size=8)
    assert result.samples == 64


def test_regression_has_a_loss_and_no_accuracy() -> None:
    model = nn.Linear(6, 1)
    inputs, targets = classes()
    data = (inputs, targets.float().unsqueeze(1))
    result = fit(
        model, data, data, loss=nn.MSELoss(), optimizer=SGD(model.parameters(), 0.01), workers=2, epochs=2
    )
    assert result.accuracy is None
    assert result.test_loss is not None


def test_a_worker_of_uneven_speed_leaves_its_share_to_the_others() -> None:
    def slow_loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        import os

        if min(os.sched_getaffinity(0)) == slow_core:
            time.sleep(0.02)
        return nn.functional.cross_entropy(output, targets)

    import os

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores to tell two workers apart")
    slow_core = cores[0]
    model = perceptron()
    result = fit(
        model, classes(), loss=slow_loss, optimizer=SGD(model.parameters(), 0.01), workers=2, epochs=10,
        batch_size=4,
    )  # fmt: skip
    by_worker = [report.pushes for report in result.workers]
    assert sum(by_worker) == 240
    assert by_worker[1] > 2 * by_worker[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", [*PROTOCOLS, wl.asp(sync_seconds=0.01)], ids=lambda protocol: protocol.name
)
def test_many_short_runs_all_end_and_lose_nothing(protocol: Any) -> None:
    # short runs start, cut and end all the time: where a lost wake or a group applied twice would show
    for attempt in range(12):
        model = Counter()
        result = fit(
            model,
            numbers(96),
            numbers(20) if attempt % 2 else None,
            loss=first,
            optimizer=SGD(model.parameters(), 1.0),
            workers=2 + attempt % 2,
            epochs=2,
            batch_size=7,
            protocol=protocol,
            start_method="fork",
        )
        assert (result.samples, result.pushes) == (192, 28)
        if protocol.weight == wl.Constant() and protocol.name not in ("hogwild", "softsync"):
            assert model.total.item() == -result.updates
