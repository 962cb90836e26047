export async function execute(args: object) { return args }
