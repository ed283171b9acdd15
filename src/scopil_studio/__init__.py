"""`scopil studio` records demonstrations, shows runs and compares policies in the browser. `scopil play` records
demonstrations with the keyboard.

server.py      routes and sockets; runs no environment and reads no run folder
guard.py       access control: token, key, Host, Origin
connections.py limits of idle connections
workers.py     the server's side of worker processes: messages, time limits
worker.py      the worker process: configuration, checked calls
listing.py     files described without reading them whole
paths.py       names sent by the page, as paths inside the studio's folder
recording.py   episodes played by a person   comparing.py       policies side by side
correct.py     corrections of a policy       policies.py        policies with environment and rules
watching.py    runs and their curves         training_jobs.py   runs started, stopped, resumed
recorder.py    a file of recorded episodes: undo, keep, drop
keyboard.py    keys, their actions and the window of play.py
page/          files for the browser: plain ES modules and CSS
"""
