// Package sqlite opens SQLite databases with safe defaults: one writer that groups commits, a small
// pool of readers, identity and integrity checks, and migrations.
//
// Do returns after the transaction is durable (synchronous=FULL). A file that is damaged or belongs
// to another program is reported as *CorruptError and left unchanged. SQL written by a model never
// shares a driver instance with rouse's own SQL.
package sqlite
