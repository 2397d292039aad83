"""What requests run on: catalogue, KV capacity, step time, and the deployment they add up to."""

from pipeline.hardware.deployment import Deployment, describe, resolve

__all__ = ["Deployment", "describe", "resolve"]
