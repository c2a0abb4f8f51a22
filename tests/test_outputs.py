"""What other methods differentiate: the same noise, whatever the model predicts."""

from types import SimpleNamespace

import pytest
import torch
from diffusers import DDIMScheduler

from core.draws import keyed_generator, make_draws
from core.gradients import fold_gradients
from core.measurements import loss
from core.outputs import expected_pictures, journey_features, noise_of
from core.parameters import parameter_layout
from core.projection import make_projection
from tests.toys import tiny_denoiser


def trajectory_of(denoiser):
    """Return the steps in which a small model draws a picture."""
    return denoiser.float().sample([keyed_generator(0, "sample")], num_steps=4)[0]


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction", "sample"])
def test_a_perfect_output_states_the_true_noise(prediction_type):
    """Whatever a model was trained to give, its target is the noise that was added."""
    denoiser = tiny_denoiser(prediction_type=prediction_type)
    g = keyed_generator(0, "test")
    x_0, noise = torch.randn(2, 5, *denoiser.shape, generator=g).double()
    t = torch.tensor([0, 3, 7, 12, 19])
    x_t = denoiser.add_noise(x_0, noise, t)
    found = noise_of(denoiser, denoiser.target(x_0, noise, t), x_t, t)
    torch.testing.assert_close(found, noise)


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction"])
def test_expected_pictures_are_the_sampler_s_own(prediction_type):
    """At every step what diffusers calls the predicted original sample."""
    denoiser = tiny_denoiser(prediction_type=prediction_type)
    trajectory = trajectory_of(denoiser)
    scheduler = DDIMScheduler.from_config(
        denoiser.scheduler.config, timestep_spacing="trailing"
    )
    scheduler.set_timesteps(4)
    found = expected_pictures(denoiser, trajectory, None, batch_size=3)
    for step, t in enumerate(trajectory.timesteps):
        x_t = trajectory.states[step][None]
        with torch.no_grad():
            output = denoiser.predict(x_t, t[None], None)
        expected = scheduler.step(output, t, x_t).pred_original_sample
        torch.testing.assert_close(found[step : step + 1], expected)


def test_a_journey_s_feature_is_the_gradient_of_its_step():
    """The projected loss gradient of the expected picture at the step's noise level."""
    denoiser = tiny_denoiser()
    trajectory, layout = trajectory_of(denoiser), parameter_layout(denoiser.unet)
    projection = make_projection("signs", layout.num_params, 6, seed=0)
    basis = SimpleNamespace(layout=layout, rotate=lambda vectors: 2 * vectors)
    steps = []
    features = journey_features(
        denoiser,
        basis,
        projection,
        trajectory,
        None,
        num_draws=2,
        seed=3,
        on_step=lambda *done: steps.append(done),
    )
    pictures = expected_pictures(denoiser, trajectory, None)
    for step, t in enumerate(trajectory.timesteps.tolist()):
        generator = keyed_generator(3, "journey", t, 2)
        draws = make_draws(2, denoiser.shape, 20, generator, timestep_range=(t, t + 1))
        assert (draws.timesteps == t).all()
        gradient, _ = fold_gradients(
            loss, denoiser, layout, pictures[step], None, draws, 1
        )
        expected = projection.apply(2 * gradient)[0]
        torch.testing.assert_close(features[step], expected, rtol=1e-4, atol=1e-4)
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
