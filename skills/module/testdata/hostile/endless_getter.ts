// timeout
// What reads the result runs within the time as well.
export async function execute() { return { get value() { for (;;) {} } }; }
