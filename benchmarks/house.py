"""`python -m benchmarks.house`: rooms, arrows, upward imports and circles of the package."""

from dreamproof.testing.imports import arrows, circles, module_graph, rooms_of, upward_imports


def main() -> None:
    """Prints the figures of the whole package and of study/."""
    graph = module_graph()
    for package in ("dreamproof", "dreamproof.study"):
        rooms = rooms_of(graph, package)
        print(f"{package}: {len(rooms)} rooms, {arrows(rooms)} arrows, {len(circles(rooms))} circles between rooms")
        for room, used in rooms.items():
            print(f"  {room:<14}{', '.join(sorted(used)) or '–'}")
    upward, found = upward_imports(rooms_of(graph, "dreamproof")), circles(graph)
    print(f"modules: {len(graph)}")
    print(f"upward imports: {len(upward)}", *upward, sep="\n  ")
    print(f"circles: {len(found)}", *(" ↔ ".join(circle) for circle in found), sep="\n  ")


if __name__ == "__main__":
    main()
