def hurry(obs, action, next_obs):
    """Faster than one unit per step."""
    return next_obs["speed"][0] > 1


def wet(obs, action, next_obs):
    """Walking on the wet side."""
    return next_obs["place"][1] > 0.5 and next_obs["speed"][0] > 0
