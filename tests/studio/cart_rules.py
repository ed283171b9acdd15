def left_lane(obs, action, next_obs):
    return next_obs["pose"][0] < -0.8


def too_fast(obs, action, next_obs):
    return abs(action).max() > 0.95
