import numpy as np
import onnxruntime

from my_env import Corridor

policy, env = onnxruntime.InferenceSession("policy.onnx"), Corridor()
obs, _ = env.reset(seed=0)
for steps in range(1, 101):
    row = np.concatenate([obs["place"], obs["speed"]])[None]
    obs, _, there, _, _ = env.step(policy.run(["action"], {"obs": row, "noise": np.zeros((1, 5), np.float32)})[0][0])
    if there:
        break
print(f"at the door after {steps} steps" if there else "still on the way")
