"""`scopil studio`: record, watch and compare in the browser.

server.py      routes and sockets; runs no environment and reads no run
guard.py       who may talk to it: token, cookie, Host, Origin, sizes
places.py      names that the page sends, as paths inside the folder
channel.py     messages between the server and its worker processes
workers.py     those processes, seen from the server
worker.py      those processes, seen from inside: a table of answers
recording.py   a person playing        comparing.py   policies side by side
watching.py    runs and their curves   training_jobs.py   runs started, stopped, resumed
page/          what the browser gets: plain ES modules and CSS
"""
