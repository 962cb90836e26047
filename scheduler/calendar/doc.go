// Package calendar reads calendars: iCalendar files (RFC 5545) and public holidays. It uses no
// clock, network or files. The entries are stored in a schedule.Calendar.
//
// # Design
//
// Recurring events may have no end. They are expanded from two years before to ten years after the
// current time. The daemon reads its calendars at least once a day, long before the end of that
// period.
//
// Whole days, and times without a zone, are local times that apply in the zone of each schedule. If
// an event in a file is invalid, the whole file is rejected. With an incomplete calendar, jobs
// would run at times that their owner excluded.
package calendar
