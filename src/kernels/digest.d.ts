// Type of what config/digest.ts makes of a folder of kernels: a checksum, in hexadecimal digits.

declare module '*?digest' {
  const digest: string;
  export default digest;
}
