// Package control holds the tools with which a run steers itself: todo, complete, clarify,
// notify.
//
// # Design
//
// None of them reaches outside. A checklist lives as long as its run's attempt and is for the
// model alone; what counts is the summary of complete, and one that says nothing is refused,
// because the owner reads it instead of having watched. A notice goes into the ledger's outbox
// under the key of its call, so that a repeated call does not notify twice, and no run waits for
// a delivery.
package control
