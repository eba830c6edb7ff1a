// needs: panels, ROW
// gives: Sums, left_at, right_at, add_product, keep_sums
// Fragments of 16 x 16 in a GPU's matrix units, read from panels of halves.
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

fn left_at(at: u32) -> Left { return subgroupMatrixLoad<Left, row_major>(&panels, at, ROW); }
fn right_at(at: u32) -> Right { return subgroupMatrixLoad<Right, col_major>(&panels, at, ROW); }
fn add_product(sums: Sums, left: Left, right: Right) -> Sums { return subgroupMatrixMultiplyAccumulate(left, right, sums); }
fn keep_sums(at: u32, sums: Sums) { subgroupMatrixStore<row_major>(&panels, at, sums, 4u); }
