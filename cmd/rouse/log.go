package main

import (
	"io"
	"log/slog"
	"os"

	"rouse/cmd/internal/config"
)

// newLogger writes text to a terminal, and JSON to anything else, unless told otherwise.
func newLogger(c config.Log, level *slog.LevelVar, w io.Writer) *slog.Logger {
	level.Set(logLevel(c))
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" || (c.Format != "text" && !isTerminal(w)) {
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

// quietLogger is that of a command: it says what goes wrong, and nothing else.
func quietLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
