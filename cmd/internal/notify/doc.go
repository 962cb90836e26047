// Package notify delivers the notices in the outbox to the owner.
//
// # Design
//
// A run's notice is committed in the same transaction as the result it reports. Delivery is
// separate, so a run never fails or waits because of it.
//
// One loop sleeps until the ledger changes or a retry is due. It passes each channel its notices;
// the channels send concurrently, so a hanging channel does not delay the others. A failed notice
// is retried with increasing delays, up to a limit. If a channel cannot work on this machine (no
// desktop session), its notices stay pending for a week without using up retries. `rouse doctor`
// reports them.
//
// A digest is also a notice. The ledger stores the end of each channel's last digest in the
// transaction of the notice. Every moment is therefore covered by exactly one digest.
package notify
