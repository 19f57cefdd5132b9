"""Calls a chat API as the client of OpenAI does, and prints what it makes of a refusal."""

import json
import sys

import openai


def ask(key, retries):
    client = openai.OpenAI(base_url=sys.argv[1], api_key=key, max_retries=retries)
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


for _ in range(2):
    assert ask("sk-soon", 1).choices[0].message.content == "hello"

ask("sk-later", 0)
try:
    ask("sk-later", 0)
except openai.RateLimitError as e:
    headers = {k: v for k, v in e.response.headers.items() if k.startswith(("x-ratelimit", "retry-after"))}
    print(json.dumps({"code": e.code, "type": e.type, "param": e.param, "headers": headers}))
