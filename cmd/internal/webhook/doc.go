// Package webhook receives signed requests from other programs. It verifies the sender and passes
// each delivery to an Engine that stores it.
//
// # Design
//
// A request is checked in this order: path, method, size, content type, signature. If the scheme
// signs the time, requests older than five minutes are rejected, so that a captured request cannot
// be replayed later.
//
// Senders repeat a delivery with the same ID until it is acknowledged. The ID identifies the run,
// so a repeated delivery gets the first run as its response. A response of 202 means that the
// delivery is on disk.
package webhook
