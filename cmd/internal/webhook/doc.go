// Package webhook takes signed requests of other programs: it proves who sent one, and hands it over to be kept. It does not know
// what is done with it.
//
// # Design
//
// A request is refused before anything of it is believed: by its path, its method, its size, the form of its body, and its signature, in
// this order. Where a scheme signs the time, one that is older than five minutes is refused, so that whoever has seen a request cannot
// send it once more later.
//
// Senders repeat a delivery until they hear that it has arrived, and give it the same number each time. That number is the key of its
// run, so the answer to a delivery that was kept before is the run of the first time. Who answers 202 has it on disk.
package webhook
