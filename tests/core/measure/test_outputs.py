"""What other methods differentiate: the same noise, whatever the model predicts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler

from core.drawing import Drawing
from core.index.projection import make_projection
from core.measure.costs import loss, noising
from core.measure.draws import keyed_generator, make_draws
from core.measure.gradients import fold_gradients
from core.measure.outputs import predict
from core.model.parameters import parameter_layout
from core.model.sampling import Subject, Trajectory, sample
from core.scores.journey import expected_images, step_features
from tests.helpers.toys import tiny_denoiser


def trajectory_of(denoiser):
    """Return the steps in which a small model draws an image."""
    return sample(denoiser.float(), [Drawing(None, 0, num_steps=4)], 0)[0]


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction", "sample"])
def test_a_perfect_output_states_the_true_noise(prediction_type, monkeypatch):
    """Whatever a model was trained to give, its target is the noise that was added."""
    denoiser = tiny_denoiser(prediction_type=prediction_type)
    draws = make_draws(5, denoiser.shape, 20, keyed_generator(0, "test"))
    draws = replace(draws, noise=draws.noise.double())
    x_0 = torch.randn(denoiser.shape, generator=keyed_generator(0, "x")).double()
    clean, noise, timesteps, _ = noising(denoiser, x_0, None, draws)
    target = denoiser.target(clean, noise, timesteps)
    monkeypatch.setattr(denoiser, "predict", lambda x_t, timesteps, labels: target)
    found = predict(denoiser, x_0, None, draws)
    torch.testing.assert_close(found.predicted_noise, noise)
    assert found.residual() < 1e-12 and found.losses().max() == 0


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction"])
def test_expected_pictures_are_the_sampler_s_own(prediction_type):
    """At every step what diffusers calls the predicted original sample."""
    denoiser = tiny_denoiser(prediction_type=prediction_type)
    trajectory = trajectory_of(denoiser)
    scheduler = DDIMScheduler.from_config(
        denoiser.scheduler.config, timestep_spacing="trailing"
    )
    scheduler.set_timesteps(4)
    found = expected_images(denoiser, trajectory, None, batch_size=3)
    for step, t in enumerate(trajectory.timesteps):
        x_t = trajectory.states[step][None]
        with torch.no_grad():
            output = denoiser.predict(x_t, t[None], None)
        expected = scheduler.step(output, t, x_t).pred_original_sample
        torch.testing.assert_close(found[step : step + 1], expected)


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction", "sample"])
def test_expected_pictures_are_clipped_where_the_sampler_clips(prediction_type):
    """At its own range, with guidance: each entry solved from Eq. 1 by itself."""
    denoiser = tiny_denoiser(
        prediction_type=prediction_type, label_dropout=0.1, clip_sample=True
    )
    denoiser.scheduler.register_to_config(clip_sample_range=0.4)
    g = keyed_generator(0, "states")
    states = 2 * torch.randn(5, *denoiser.shape, generator=g).double()
    timesteps = torch.tensor([19, 13, 6, 0])
    found = expected_images(denoiser, Trajectory(timesteps, states), 1, 3.0)
    clipped = 0
    for step, t in enumerate(timesteps):
        alpha = float(denoiser.alphas_cumprod[t])
        with torch.no_grad():
            named, unnamed = (
                denoiser.unet(states[step][None], t, torch.tensor([label])).sample
                for label in (1, denoiser.null_label)
            )
        for place in np.ndindex(*denoiser.shape):
            x_t = float(states[step][place])
            output = float(unnamed[0][place])
            output += 3.0 * (float(named[0][place]) - output)
            # Two equations, x_t = signal x_0 + sigma e and what the model states.
            signal, sigma = alpha**0.5, (1 - alpha) ** 0.5
            stated = {
                "epsilon": [0, 1],
                "sample": [1, 0],
                "v_prediction": [-sigma, signal],
            }[prediction_type]
            clean, _ = np.linalg.solve([[signal, sigma], stated], [x_t, output])
            clipped += abs(clean) > 0.4
            expected = min(max(clean, -0.4), 0.4)
            assert float(found[step][place]) == pytest.approx(expected, abs=1e-5)
    assert 10 < clipped < found.numel()


def test_a_journey_s_feature_is_the_gradient_of_its_step():
    """The projected loss gradient of the expected image at the step's noise level."""
    denoiser = tiny_denoiser()
    trajectory, layout = trajectory_of(denoiser), parameter_layout(denoiser.unet)
    projection = make_projection("signs", layout.num_params, 6, seed=0)
    steps = []
    features = step_features(
        denoiser,
        Subject(trajectory.states[-1], None, trajectory),
        loss,
        lambda gradient: projection.apply(2 * gradient),
        num_draws=2,
        seed=3,
        on_step=lambda *done: steps.append(done),
    )
    pictures = expected_images(denoiser, trajectory, None)
    for step, t in enumerate(trajectory.timesteps.tolist()):
        generator = keyed_generator(3, "journey", t, 2)
        draws = make_draws(2, denoiser.shape, (t, t + 1), generator)
        assert (draws.timesteps == t).all()
        gradient, _ = fold_gradients(
            loss, denoiser, layout, pictures[step], None, draws, 1
        )
        expected = projection.apply(2 * gradient)[0]
        torch.testing.assert_close(features[step], expected, rtol=1e-4, atol=1e-4)
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
