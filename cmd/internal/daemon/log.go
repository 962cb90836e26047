package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"rouse/agent/redact"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// LogVar holds the settings of a logger that a reload can change.
type LogVar struct {
	level slog.LevelVar
	zone  atomic.Pointer[time.Location]
	hide  atomic.Pointer[redact.Redactor] // of all secrets that were configured since the start
}

func (v *LogVar) set(cfg *config.Config) {
	v.level.Set(logLevel(cfg.Log))
	v.zone.Store(cfg.Zone())
	v.hide.CompareAndSwap(nil, redact.New(nil))
	for _, secret := range cfg.Secrets() {
		v.hide.Load().Add(secret)
	}
}

// NewLogger writes text to a terminal, and JSON to anything else, unless log.format is set. It reports lines that a LogWriter
// drops in the same form.
func NewLogger(cfg *config.Config, v *LogVar, w io.Writer) *slog.Logger {
	v.set(cfg)
	behind, ok := w.(*LogWriter)
	if !ok {
		return newLogger(cfg.Log, v, w, w)
	}

	reader := newLogger(cfg.Log, v, behind.to, behind.to)
	behind.tellBy(func(lost int) { reader.Error(lostText(lost), "lines", lost) })
	return newLogger(cfg.Log, v, w, behind.to)
}

// newLogger writes to w in the form that suits its reader.
func newLogger(c config.Log, v *LogVar, w, reader io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: &v.level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 && a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().In(v.zone.Load()))
		}
		return v.redact(a)
	}}
	if c.Format == "json" || (c.Format != "text" && !text.IsTerminal(reader)) {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// redact returns an attribute without secrets.
func (v *LogVar) redact(a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		text = fmt.Sprint(a.Value.Any())
	default:
		return a
	}
	if clean := v.hide.Load().Replace(text); clean != text {
		a.Value = slog.StringValue(clean)
	}
	return a
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
