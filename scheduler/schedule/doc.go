// Package schedule computes which instants a schedule means, and what becomes of those that
// have passed. It is pure: no clock, no database, no goroutine.
//
// # Design
//
// robfig/cron parses cron expressions into sets of seconds, minutes and so on; nothing
// else of it is used, because its evaluation loses and doubles occurrences when clocks
// change. Here a spec whose hour field allows every hour runs in real time: an instant
// matches when its local clock reading does. Every other spec names local clock readings,
// and each reading is mapped to one instant: a reading that exists twice to the first, one
// that does not exist to the first instant after the gap, and one on a date that the zone
// skipped to none. A zone caches the changes of its clock in the weeks that are asked for;
// on a day that is not near a change, the next reading is found with the bit masks alone.
//
// Decisions about instants that have passed (Due) are functions of a watermark, now and a
// policy, so that the daemon and a simulation decide alike. In the same way the decision about
// a wake that an agent asks for (Clamp) is a function of now, its limits and its usage.
package schedule
