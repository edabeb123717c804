"""What stands between the tools of a project and the services that run them, for those who only look."""

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.registry import tools_without_cards
from toolwire.cli.terminal.screen import Screen


def warn_of_services(screen: Screen, place: ProjectFolder) -> None:
    """Tell it on standard error: a broker that is missing, and tools whose service could not read its calls."""
    for warning in (place.missing_bus, cards_warning(place)):
        if warning:
            screen.tell(f"Warning: {warning}", "yellow")


def cards_warning(place: ProjectFolder) -> str:
    """Which registered tools no service of the settings may read the cards of; empty where all is well."""
    if not (names := tools_without_cards(place)):
        return ""
    return (
        f"no bus_services.NAME.tools names {', '.join(names)}: toolwire serve shows a service the cards of the tools "
        "that are named there, and of no others; add them to the section of the service that runs them"
    )
