package api

import (
	"fmt"
	"time"

	"rouse/internal/text"
)

// Calendar is how a calendar of the configuration is.
type Calendar struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`       // holidays, file or url
	Times     int    `json:"times"`      // that it names, some years around now
	FetchedAt Time   `json:"fetched_at"` // of a url, when what is kept of it came; null: it never did
	ChangedAt Time   `json:"changed_at"` // of a url, when it was last another than before
	Problem   string `json:"problem"`    // why it could not be fetched the last time; "": it could
}

// Text says how it is, with the age of what was fetched.
func (c Calendar) Text(now time.Time) string {
	said := fmt.Sprintf("calendar %s (%s): %s", c.Name, c.Kind, text.Plural(c.Times, "time"))
	switch {
	case c.Kind != "url":
		return said
	case c.FetchedAt.IsZero() && c.Problem == "":
		return fmt.Sprintf("calendar %s (url): not fetched yet", c.Name)
	case c.FetchedAt.IsZero():
		return fmt.Sprintf("calendar %s (url): it could never be fetched: %s", c.Name, c.Problem)
	}
	said += fmt.Sprintf(", fetched %s ago", now.Sub(c.FetchedAt.Time).Round(time.Second))
	if c.Problem != "" {
		said += ", and not since: " + c.Problem
	}
	return said
}
