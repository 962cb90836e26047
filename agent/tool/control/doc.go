// Package control contains the tools with which a run controls itself: todo, complete, clarify and
// notify.
//
// # Design
//
// The todo list is for the model only and lasts as long as the attempt. The summary of complete is
// for the owner, so summaries that report no result are rejected. A notice goes into the ledger's
// outbox under the key of its call, so a repeated call does not notify twice. A run does not wait
// for delivery.
package control
