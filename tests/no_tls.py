"""For clients of servers that speak no TLS: to read the certificates of the system takes each client 20 ms."""

import ssl
from typing import Any

import anthropic
import openai

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody."""


def openai_client(**given: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(**given, http_client=openai.DefaultAsyncHttpxClient(verify=NO_TLS))


def anthropic_client(**given: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(**given, http_client=anthropic.DefaultAsyncHttpxClient(verify=NO_TLS))
