// Package moduleapi implements host, the object through which a module of a skill calls rouse.
//
// A module has a method only if its manifest declares the method and the grants of its agent cover
// it. Each call becomes a tool call, which is authorized, recorded and limited like any other.
// Commands become calls of shell_run, so all programs pass the same checks.
//
// Values of secrets are never recorded. In later arguments of the module, each known value is
// replaced by its placeholder. The sender fills in the value again, and only for the host that the
// secret is granted for. Tokens of sign-ins are treated like secrets, under names that no secret
// can have.
//
// Offers are the tools that a skill provides to agents. They are declared in the manifest or
// registered by the module. The caller of this package runs them.
package moduleapi
