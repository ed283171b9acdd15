"""A cautious driver: well behind the car ahead, past it where the next lane is free, never faster than 25 m/s."""

LEFT, STAY, RIGHT, FASTER, SLOWER = range(5)


def act(obs):
    speed, lane = obs["speed"][0], obs["lane"][0]
    if room(obs, 1) < 3:  # seconds
        settled = abs(lane - round(lane)) < 0.1
        if settled and (side := free_side(obs)) is not None:
            return side
        return SLOWER if speed > 20.5 else STAY
    return FASTER if speed < 24 and room(obs, 1) > 4 else STAY


def room(obs, side):
    """Seconds to the car ahead, as it will be in two seconds."""
    return (obs["ahead"][side] - 2 * max(obs["closing"][side], 0)) / obs["speed"][0]


def free_side(obs):
    """The way to a lane with more room ahead, and some behind."""
    for side, action in ((2, RIGHT), (0, LEFT)):
        behind = obs["behind"][side] - 2 * max(obs["gaining"][side], 0)
        if room(obs, side) > max(1.5, room(obs, 1) + 0.5) and behind > 15:
            return action
    return None
