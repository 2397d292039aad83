"""Provisioned capacity: what a unit serves and costs, what traffic it refuses, how many to buy."""
