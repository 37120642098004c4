"""Parts added from outside the package, each by the public protocol and the name in the project file alone."""
