// Package control holds the tools with which a run steers itself: todo, complete, clarify,
// notify.
//
// # Design
//
// None of them reaches outside. A checklist lives as long as its run's attempt and is there
// for the model alone; what counts is what complete says, and words that say nothing are
// refused, because the owner reads them instead of having watched. A notice goes into the
// ledger's outbox under the key of its call, so that a call which is made again does not
// tell twice, and no run waits for a delivery.
package control
