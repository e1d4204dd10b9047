"""The bodies of the Goal tasks, each as a bundle of functions: how it starts, moves and senses itself."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from dreamproof.envs.car import dynamics as car
from dreamproof.envs.point import dynamics as point
from dreamproof.envs.point.params import Physics
from dreamproof.envs.point.sensors import Inner, sense_inner


class Robot(NamedTuple):
    """One body. Its state has x, y and heading; its physics has `shifted` and `varied`.

    physics: its parameters; start: at rest at a place (2,) with a heading; simulate: one simulator step under an action
    (2,); sense: what it feels after one. wheels: its actions are the torques of two wheels, not drive and turn.
    """

    physics: Callable[[], Any]
    start: Callable[[Array, Array], Any]
    simulate: Callable[[Any, Array, Any], Any]
    sense: Callable[[Any, Array, Any], Inner]
    wheels: bool


def _standing_point(place: Array, heading: Array) -> point.PointBody:
    zero = jnp.zeros(())
    return point.PointBody(place[0], place[1], heading, zero, zero, zero)


def _sense_car(body: car.CarBody, action: Array, physics: car.CarPhysics) -> Inner:
    heading = body.heading
    felt = car.felt_acceleration(body, action, physics)
    return Inner(
        acceleration=car.ahead_and_left(felt),
        velocity=car.ahead_and_left(body.own_velocity),
        spin=body.turning[2],
        cosine=jnp.cos(heading),
        sine=jnp.sin(heading),
        place=body.place[:2],
    )


POINT = Robot(Physics.of_point, _standing_point, point.simulate, sense_inner, wheels=False)
CAR = Robot(car.CarPhysics.of_car, car.standing, car.simulate, _sense_car, wheels=True)
