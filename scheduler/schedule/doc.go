// Package schedule computes the instants of a schedule and decides about instants that have passed.
// It uses no clock, no database and no goroutines.
//
// # Design
//
// Package robfig/cron is used only to parse cron expressions into sets of seconds, minutes and so
// on. Its evaluation is not used, because it loses and duplicates occurrences when clocks change.
//
// A schedule whose hour field allows every hour runs in real time. An instant matches if its local
// time matches. Every other schedule consists of local times, each of which maps to one instant. A
// local time that occurs twice maps to the first one. A skipped local time maps to the first
// instant after the gap. A local time on a date that the zone skips does not map to an instant.
//
// A zone caches its clock changes by week. On a day without a nearby change, the next local time is
// computed from the bit masks alone.
//
// Due decides about passed instants as a function of a watermark, the current time and a policy.
// Clamp decides about an agent's wake request as a function of the current time, limits and usage.
// The daemon and a simulation therefore make the same decisions.
package schedule
