// Package calendar reads what calendars hold: iCalendar files (RFC 5545), and the holidays of countries. It is pure: no clock, no
// network, no file. A schedule asks a schedule.Calendar, which holds what is read here.
//
// # Design
//
// Recurring events have no end, so they are written out from some years before now to some years after: a daemon reads its calendars
// again each day at the latest, long before the end is reached. Whole days, and times without a zone, are clock readings, and are
// looked at in the zone of whoever asks. A file with an event that is not understood is refused as a whole: half a calendar would run
// what its owner left out, without a word.
package calendar
