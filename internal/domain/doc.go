// Package domain defines the shared vocabulary of rouse: triggers, states and outcomes of runs,
// effects and states of tool calls, and schedule policies.
//
// The values appear in the configuration, in the ledger and in JSON, so they must not change. The
// package contains only types, constants and simple predicates. Decisions belong to other packages.
package domain
