// threw: RangeError: there are 10000 timers
export async function execute() { for (;;) setTimeout(() => {}, 1e6); }
