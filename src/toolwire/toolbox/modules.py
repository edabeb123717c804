"""The modules from which `registry` makes tools, each loaded when the first tool of it is wanted.

Most commands need few tools, and loading all of them would take longer than most calls.
"""

from typing import TYPE_CHECKING

from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    from toolwire.execute import quota, toolchains
    from toolwire.execute.egress import web as egress_web
    from toolwire.execute.sandbox import engines
    from toolwire.record import memory
    from toolwire.toolbox import everyday, tool_show
    from toolwire.toolbox.agents import delegation, delegation_tools, model_tools, orchestration_tools, workflow_tool
    from toolwire.toolbox.browser import browser_tool, chromium
    from toolwire.toolbox.data import json_transform, paging
    from toolwire.toolbox.device import camera, gpio_tools, host, ping, pins, safe_exec, sensors, system
    from toolwire.toolbox.disk import local_files
    from toolwire.toolbox.files import finding, images, patching, reading, searching, writing
    from toolwire.toolbox.git import commit_tool, inspect_tools
    from toolwire.toolbox.records import assign_tool, models_sync, schedule_tools
    from toolwire.toolbox.records import search_tool as record_search
    from toolwire.toolbox.records import writing_tools as record_writing
    from toolwire.toolbox.shell import bash, job_tools, jobs
    from toolwire.toolbox.user import canvas, question, todos
    from toolwire.toolbox.web import fetching, search
else:
    egress_web = lazy_module("toolwire.execute.egress.web")
    quota = lazy_module("toolwire.execute.quota")
    engines = lazy_module("toolwire.execute.sandbox.engines")
    toolchains = lazy_module("toolwire.execute.toolchains")
    memory = lazy_module("toolwire.record.memory")
    delegation = lazy_module("toolwire.toolbox.agents.delegation")
    delegation_tools = lazy_module("toolwire.toolbox.agents.delegation_tools")
    model_tools = lazy_module("toolwire.toolbox.agents.model_tools")
    orchestration_tools = lazy_module("toolwire.toolbox.agents.orchestration_tools")
    workflow_tool = lazy_module("toolwire.toolbox.agents.workflow_tool")
    browser_tool = lazy_module("toolwire.toolbox.browser.browser_tool")
    chromium = lazy_module("toolwire.toolbox.browser.chromium")
    json_transform = lazy_module("toolwire.toolbox.data.json_transform")
    paging = lazy_module("toolwire.toolbox.data.paging")
    camera = lazy_module("toolwire.toolbox.device.camera")
    gpio_tools = lazy_module("toolwire.toolbox.device.gpio_tools")
    host = lazy_module("toolwire.toolbox.device.host")
    ping = lazy_module("toolwire.toolbox.device.ping")
    pins = lazy_module("toolwire.toolbox.device.pins")
    safe_exec = lazy_module("toolwire.toolbox.device.safe_exec")
    sensors = lazy_module("toolwire.toolbox.device.sensors")
    system = lazy_module("toolwire.toolbox.device.system")
    local_files = lazy_module("toolwire.toolbox.disk.local_files")
    everyday = lazy_module("toolwire.toolbox.everyday")
    tool_show = lazy_module("toolwire.toolbox.tool_show")
    finding = lazy_module("toolwire.toolbox.files.finding")
    images = lazy_module("toolwire.toolbox.files.images")
    patching = lazy_module("toolwire.toolbox.files.patching")
    reading = lazy_module("toolwire.toolbox.files.reading")
    searching = lazy_module("toolwire.toolbox.files.searching")
    writing = lazy_module("toolwire.toolbox.files.writing")
    commit_tool = lazy_module("toolwire.toolbox.git.commit_tool")
    inspect_tools = lazy_module("toolwire.toolbox.git.inspect_tools")
    assign_tool = lazy_module("toolwire.toolbox.records.assign_tool")
    models_sync = lazy_module("toolwire.toolbox.records.models_sync")
    schedule_tools = lazy_module("toolwire.toolbox.records.schedule_tools")
    record_search = lazy_module("toolwire.toolbox.records.search_tool")
    record_writing = lazy_module("toolwire.toolbox.records.writing_tools")
    bash = lazy_module("toolwire.toolbox.shell.bash")
    job_tools = lazy_module("toolwire.toolbox.shell.job_tools")
    jobs = lazy_module("toolwire.toolbox.shell.jobs")
    canvas = lazy_module("toolwire.toolbox.user.canvas")
    question = lazy_module("toolwire.toolbox.user.question")
    todos = lazy_module("toolwire.toolbox.user.todos")
    fetching = lazy_module("toolwire.toolbox.web.fetching")
    search = lazy_module("toolwire.toolbox.web.search")

__all__ = [
    "assign_tool", "bash", "browser_tool", "camera", "canvas", "chromium", "commit_tool", "delegation",
    "delegation_tools", "egress_web", "engines", "everyday", "fetching", "finding", "gpio_tools", "host", "images",
    "inspect_tools", "job_tools", "jobs", "json_transform", "local_files", "memory", "model_tools", "models_sync",
    "orchestration_tools", "paging", "patching", "ping", "pins", "question", "quota", "reading", "record_search",
    "record_writing", "safe_exec", "schedule_tools", "search", "searching", "sensors", "system", "todos", "tool_show",
    "toolchains", "workflow_tool", "writing",
]  # fmt: skip
