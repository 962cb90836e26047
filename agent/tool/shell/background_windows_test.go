package shell_test

// more are programs that not every system can start.
var more map[string]func(args []string) int
