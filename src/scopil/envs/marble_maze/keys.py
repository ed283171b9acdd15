"""Keys for playing Marble Maze by hand."""

from scopil.data.keyboard import KeyMap


def marble_maze_keys() -> KeyMap:
    """Keys point to where the ball should go: arrows (two together for a diagonal), the keypad, or the letters
    around S. The physics' order: none/up/down × none/left/right."""
    up, down, left, right = 3, 6, 1, 2
    actions: dict[frozenset[str], int] = {}
    for keys in (("up", "down", "left", "right"), ("w", "x", "a", "d")):
        single = dict(zip(keys, (up, down, left, right)))
        for key, action in single.items():
            actions[frozenset([key])] = action
        for v in keys[:2]:
            for h in keys[2:]:
                actions[frozenset([v, h])] = single[v] + single[h]
    corners = ("q", 7, up + left), ("e", 9, up + right), ("z", 1, down + left), ("c", 3, down + right)
    for letter, digit, action in corners:
        actions[frozenset([letter])] = actions[frozenset([f"[{digit}]"])] = action
    for digit, action in ((8, up), (2, down), (4, left), (6, right), (5, 0)):
        actions[frozenset([f"[{digit}]"])] = action
    for key in ("space", ".", "s"):
        actions[frozenset([key])] = 0
    return KeyMap(actions, 0, "Arrows (two for a diagonal): tilt    Space: no tilt change")
