package file

import (
	"io/fs"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// fileFacts holds the properties of a file in a listing.
type fileFacts struct {
	Size     *int64 `json:"size,omitempty"`     // bytes
	Modified string `json:"modified,omitempty"` // RFC 3339, in the configured zone
}

func (f *files) facts(info fs.FileInfo) fileFacts {
	size := info.Size()
	return fileFacts{&size, info.ModTime().In(f.Zone).Format(time.RFC3339)}
}

// parseSince parses the argument since. It returns the zero time if the argument is empty. A
// duration counts back from now.
func (f *files) parseSince(written string) (time.Time, error) {
	written = strings.TrimSpace(written)
	if written == "" {
		return time.Time{}, nil
	}
	if d, err := text.ParseSpan(written); err == nil {
		return time.Now().Add(-max(d, -d)), nil
	}
	at, err := time.Parse(time.RFC3339, written)
	if err != nil && f.Since != nil {
		at, err = f.Since(written)
	}
	if err != nil {
		return at, tool.Refuse(tool.KindInvalidArgs, "since: %v", err).WithField("since", "a time like 2026-11-30T08:00:00+01:00, or a duration like 24h or 7d")
	}
	return at, nil
}
