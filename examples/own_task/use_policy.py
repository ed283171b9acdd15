import numpy as np
import onnxruntime
from my_env import Corridor

policy, env = onnxruntime.InferenceSession("policy.onnx"), Corridor()
noise = np.zeros((1, 5), np.float32)  # none: the likeliest action
obs, _ = env.reset(seed=0)
steps, there = 0, False
while not there and steps < 100:
    row = np.concatenate([obs["place"], obs["speed"]])[None]
    (action,) = policy.run(["action"], {"obs": row, "noise": noise})
    obs, _, there, _, _ = env.step(int(np.asarray(action)[0]))
    steps += 1
print(f"at the door after {steps} steps" if there else "still on the way")
