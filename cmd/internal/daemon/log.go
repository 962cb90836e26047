package daemon

import (
	"io"
	"log/slog"
	"os"
	"time"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// NewLogger writes text to a terminal, and JSON to anything else, unless log.format is set. Its times are those of zone. What a LogWriter loses is told in the
// same form.
func NewLogger(c config.Log, zone *time.Location, level *slog.LevelVar, w io.Writer) *slog.Logger {
	level.Set(logLevel(c))
	behind, ok := w.(*LogWriter)
	if !ok {
		return newLogger(c, zone, level, w, w)
	}

	reader := newLogger(c, zone, level, behind.to, behind.to)
	behind.tellBy(func(lost int) { reader.Error(lostText(lost), "lines", lost) })
	return newLogger(c, zone, level, w, behind.to)
}

// newLogger writes to w in the form that suits its reader.
func newLogger(c config.Log, zone *time.Location, level *slog.LevelVar, w, reader io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 && a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().In(zone))
		}
		return a
	}}
	if c.Format == "json" || (c.Format != "text" && !text.IsTerminal(reader)) {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func logLevel(c config.Log) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return slog.LevelInfo // the configuration was checked; an empty one has no level
	}
	return level
}

// QuietLogger is the logger of commands: errors only.
func QuietLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
