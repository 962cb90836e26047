// Command floor is what rouse bench start is held against: a program that opens viper, robfig/cron, fsnotify and modernc's SQLite,
// with one durable write, and nothing else. It is built when it is measured: floor FOLDER.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
	"github.com/robfig/cron/v3"
	"github.com/spf13/viper"
	_ "modernc.org/sqlite" // the driver
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := open(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func open(ctx context.Context, dir string) error {
	v := viper.New()
	v.SetDefault("log.level", "info")
	clock := cron.New()
	clock.Start()
	defer clock.Stop()

	events, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer events.Close()

	if err := events.Add(dir); err != nil {
		return err
	}

	db, err := sql.Open("sqlite", filepath.Join(dir, "floor.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()

	if _, err := db.ExecContext(ctx, "create table if not exists t(v); insert into t values (1)"); err != nil {
		return err
	}

	fmt.Println("ready")
	<-ctx.Done()
	return nil
}
